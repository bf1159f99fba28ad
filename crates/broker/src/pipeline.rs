//! The corridor: the path of a call on one screen. Every door (command line, MCP, later REST and runners) enters
//! at [`Broker::call`], and every exit passes the record.

use vambrace_core::principal::{Peer, RawCall};

use crate::admit::{NewSession, admit};
use crate::answer::Answer;
use crate::asking::{Patience, Stop};
use crate::broker::Broker;
use crate::cleanse::{Clean, cleanse};
use crate::trail::Trail;
use crate::{decide::decide, perform::perform, plan::plan, recall::recall, settle::settle, start::start};

impl Broker {
    /// Takes a call all the way. Whatever happens inside, the answer says it and the ledger has it.
    pub async fn call(&self, raw: RawCall, peer: &Peer) -> Answer {
        self.call_patiently(raw, peer, &Patience::default()).await
    }

    /// The same for a caller who waits while a person decides.
    pub async fn call_patiently(&self, raw: RawCall, peer: &Peer, patience: &Patience<'_>) -> Answer {
        let mut trail = Trail::open(self, &raw, peer);
        trail.waits = patience.longest.is_some();
        let walked = self.walk(raw, &mut trail).await;
        self.hear(walked, trail, patience).await // a question waits for its answer; everything else is recorded
    }

    pub(crate) async fn walk(&self, raw: RawCall, trail: &mut Trail) -> Result<Clean, Stop> {
        let admitted = admit(self, raw, trail, NewSession::Open).await?; // an open session, a known tool
        let admitted = recall(self, admitted, trail).await?; //             asked before: the same question
        let planned = plan(self, admitted, trail)?; //                      arguments -> effects
        let decided = decide(self, planned, trail); //                      every layer judges every effect
        let permitted = settle(self, decided, trail).await?; //             questions need vouchers, refusals stand
        let started = start(self, permitted, trail).await?; //              the start record is committed
        let performed = perform(self, started, trail).await?; //            the only step that touches anything
        Ok(cleanse(self, performed, trail)?) //                             redacted, marked
    }
}
