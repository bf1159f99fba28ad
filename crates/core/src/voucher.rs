//! Vouchers discharge obligations. They are not layers: no voucher overrides a denial.

use crate::digest::Digest;
use crate::timestamp::Timestamp;
use crate::verdict::{Grantable, LayerKind, Obligation};

/// A permission that a person or a trusted configuration gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Voucher {
    /// For one plan, usable once.
    Approval {
        /// The voucher's id.
        id: String,
        /// Digest of the plan that it is bound to.
        digest: Digest,
        /// It is invalid from this time on.
        expires: Timestamp,
        /// Whether it was already used.
        used: bool,
    },
    /// A standing permission for a class of calls.
    Grant {
        /// The voucher's id.
        id: String,
        /// The effect or tool that it covers, in the spelling of explanations.
        about: String,
        /// The layer that gave it. It discharges no obligation of a layer above.
        by: LayerKind,
        /// It is invalid from this time on; `None` for a rule of a trusted configuration file.
        expires: Option<Timestamp>,
        /// Whether it was revoked.
        revoked: bool,
    },
}

impl Voucher {
    /// The voucher's id.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Approval { id, .. } | Self::Grant { id, .. } => id,
        }
    }

    /// Whether it discharges this obligation of the plan with this digest at the given time.
    #[must_use]
    pub fn discharges(&self, obligation: &Obligation, plan: Digest, now: Timestamp) -> bool {
        match self {
            Self::Approval { digest, expires, used, .. } => !used && *digest == plan && now < *expires,
            Self::Grant { about, expires, revoked, by, .. } => {
                let written = expires.is_none() && *by <= LayerKind::User;
                let may = match obligation.grantable {
                    Grantable::Never => false,
                    Grantable::ConfiguredOnly => written,
                    Grantable::AnyGrant => true,
                };
                may && *by <= obligation.reason.layer
                    && !revoked
                    && expires.is_none_or(|expires| now < expires)
                    && *about == obligation.reason.about
            }
        }
    }
}
