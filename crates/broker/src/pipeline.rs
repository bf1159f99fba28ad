//! The corridor: the path of a call on one screen. Every door (command line, MCP, later REST and runners) enters
//! at [`Broker::call`], and every exit passes the record.

use vambrace_core::error::CallError;
use vambrace_core::principal::{Peer, RawCall};

use crate::admit::{NewSession, admit};
use crate::answer::Answer;
use crate::broker::Broker;
use crate::cleanse::{Clean, cleanse};
use crate::trail::Trail;
use crate::{decide::decide, perform::perform, plan::plan, settle::settle, start::start};

impl Broker {
    /// Takes a call all the way. Whatever happens inside, the answer says it and the ledger has it.
    pub async fn call(&self, raw: RawCall, peer: &Peer) -> Answer {
        let mut trail = Trail::open(self, &raw, peer);
        let walked = self.walk(raw, &mut trail).await;
        self.record(trail, walked).await
    }

    async fn walk(&self, raw: RawCall, trail: &mut Trail) -> Result<Clean, CallError> {
        let admitted = admit(self, raw, trail, NewSession::Open).await?; // an open session, a known tool
        let planned = plan(self, admitted, trail)?; //                      arguments -> effects
        let decided = decide(self, planned, trail); //                      every layer judges every effect
        let permitted = settle(self, decided, trail)?; //                   questions need vouchers, refusals stand
        let started = start(self, permitted, trail).await?; //              the start record is committed
        let performed = perform(self, started, trail).await?; //            the only step that touches anything
        cleanse(self, performed, trail) //                                  redacted, marked
    }
}
