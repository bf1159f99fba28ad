//! Settling: a decision and the vouchers at hand become a permit, an open question, or a refusal. Pure; using a
//! voucher up is the store's, in the same transaction as the start record.

use crate::digest::Digest;
use crate::error::ErrorCode;
use crate::fence::Fence;
use crate::policy::Decision;
use crate::timestamp::Timestamp;
use crate::verdict::Reason;
use crate::voucher::Voucher;

/// The outcome of settling: the questions are answered, or not, or there was nothing to settle.
#[derive(Debug, Clone, PartialEq)]
pub enum Settlement {
    /// Every question is answered.
    Permitted(Box<Permit>),
    /// These are open.
    Waiting(Vec<Reason>),
    /// Refused, whatever vouchers there are.
    Refused {
        /// The code for the caller.
        code: ErrorCode,
        /// Every reason.
        reasons: Vec<Reason>,
    },
}

/// Leave to start one plan. Only [`settle`] makes one.
#[derive(Debug, Clone, PartialEq)]
pub struct Permit {
    // INVARIANT: made by `settle` from a decision without refusals whose questions are all answered.
    digest: Digest,
    vouchers: Vec<String>,
    fence: Fence,
}

impl Permit {
    /// The plan it is for.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The ids of the vouchers that were needed.
    #[must_use]
    pub fn vouchers(&self) -> &[String] {
        &self.vouchers
    }

    /// What the call may touch.
    #[must_use]
    pub fn fence(&self) -> &Fence {
        &self.fence
    }
}

/// Weighs a decision against vouchers. A refusal stands; a question needs a voucher that discharges it.
#[must_use]
pub fn settle(decision: &Decision, vouchers: &[Voucher], now: Timestamp) -> Settlement {
    if let Some(first) = decision.verdict.denials().next() {
        let reasons = decision.verdict.causes().cloned().collect();
        return Settlement::Refused { code: first.code, reasons };
    }
    let mut used = Vec::new();
    let mut open = Vec::new();
    for obligation in decision.verdict.obligations() {
        let voucher = decision
            .standing
            .iter()
            .chain(vouchers)
            .find(|voucher| voucher.discharges(obligation, decision.digest, now));
        match voucher {
            Some(voucher) => used.push(voucher.id().to_owned()),
            None => open.push(obligation.reason.clone()),
        }
    }
    if open.is_empty() {
        used.dedup();
        Settlement::Permitted(Box::new(Permit {
            digest: decision.digest,
            vouchers: used,
            fence: decision.fence.clone(),
        }))
    } else {
        Settlement::Waiting(open)
    }
}
