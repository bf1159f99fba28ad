//! Vouchers discharge questions. They are not layers: no voucher changes a refusal.

use crate::digest::Digest;
use crate::timestamp::Timestamp;
use crate::verdict::{Grantable, LayerKind, Obligation};

/// A yes that somebody gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Voucher {
    /// For one plan, one use.
    Approval {
        /// Its id.
        id: String,
        /// The plan it is bound to.
        digest: Digest,
        /// Until when.
        expires: Timestamp,
        /// Whether it was used already.
        used: bool,
    },
    /// For everything of a shape.
    Grant {
        /// Its id.
        id: String,
        /// What it speaks about: an effect or a tool, as an explanation spells it.
        about: String,
        /// Who gave it. It answers no question of a layer above.
        by: LayerKind,
        /// Until when; `None` for a rule that stands in a trusted configuration.
        expires: Option<Timestamp>,
        /// Whether it was taken back.
        revoked: bool,
    },
}

impl Voucher {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Approval { id, .. } | Self::Grant { id, .. } => id,
        }
    }

    /// Whether it answers this question about the plan of this digest, now.
    #[must_use]
    pub fn discharges(&self, obligation: &Obligation, plan: Digest, now: Timestamp) -> bool {
        match self {
            Self::Approval { digest, expires, used, .. } => !used && *digest == plan && now < *expires,
            Self::Grant { about, expires, revoked, by, .. } => {
                let written = expires.is_none() && *by <= LayerKind::User;
                let may = match obligation.grantable {
                    Grantable::Never => false,
                    Grantable::Written => written,
                    Grantable::Freely => true,
                };
                may && *by <= obligation.reason.layer
                    && !revoked
                    && expires.is_none_or(|expires| now < expires)
                    && *about == obligation.reason.about
            }
        }
    }
}
