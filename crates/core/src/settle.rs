//! Settling: a policy decision and the available vouchers become a permit, open obligations, or a denial. Pure: the
//! store marks a voucher as used, in the same transaction as the start record.

use crate::digest::Digest;
use crate::error::ErrorCode;
use crate::fence::Fence;
use crate::policy::PolicyDecision;
use crate::timestamp::Timestamp;
use crate::verdict::Reason;
use crate::voucher::Voucher;

/// The outcome of settling a decision.
#[derive(Debug, Clone, PartialEq)]
pub enum Settlement {
    /// Every obligation is discharged.
    Permitted(Box<Permit>),
    /// Reasons of the obligations that no voucher discharges.
    Waiting(Vec<Reason>),
    /// Denied; no voucher changes that.
    Denied {
        /// The code that the caller gets.
        code: ErrorCode,
        /// The reasons of all denials.
        reasons: Vec<Reason>,
    },
}

/// Permission to start one plan. Only [`settle`] creates it.
#[derive(Debug, Clone, PartialEq)]
pub struct Permit {
    // INVARIANT: created by `settle` from a decision without denials whose obligations are all discharged.
    digest: Digest,
    vouchers: Vec<String>,
    fence: Fence,
}

impl Permit {
    /// Digest of the permitted plan.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The ids of the vouchers that discharged its obligations.
    #[must_use]
    pub fn vouchers(&self) -> &[String] {
        &self.vouchers
    }

    /// What the call may use while it runs.
    #[must_use]
    pub fn fence(&self) -> &Fence {
        &self.fence
    }
}

/// Settles a decision: any denial denies; each obligation needs a voucher that discharges it.
#[must_use]
pub fn settle(decision: &PolicyDecision, vouchers: &[Voucher], now: Timestamp) -> Settlement {
    if let Some(first) = decision.verdict.denials().next() {
        let reasons = decision.verdict.causes().cloned().collect();
        return Settlement::Denied { code: first.code, reasons };
    }
    let mut used = Vec::new();
    let mut open = Vec::new();
    for obligation in decision.verdict.obligations() {
        let voucher = decision
            .configured_grants
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
