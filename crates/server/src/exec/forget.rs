//! Forgetting a prefix or a tag, for every protocol: the text command, and the reserved keys for clients that know none.

use nuthatch_proto::WireError;
use nuthatch_proto::forget::Forget;
use nuthatch_store::ForgetError;

use super::Exec;
use crate::counters::ListenerCounter;
use crate::watch::{kind, push_uri_encoded};

const _: () = assert!(nuthatch_proto::forget::TAGS_MAX == nuthatch_store::TAGS_MAX);
const _: () = assert!(nuthatch_proto::forget::TAG_BYTES_MAX == nuthatch_store::FORGET_BYTES_MAX);

/// Forgets in the store of every pool that can be reached from this listener, as `flush_all` flushes them. Answers the highest
/// of the stores' numbers: it rises from one forgetting to the next. What lies behind the pools is `tiered`'s. `command` is
/// what was sent, for those who watch.
pub(crate) fn forget(exec: &Exec<'_>, what: Forget<'_>, command: &str) -> Result<u64, WireError> {
    exec.count_here(ListenerCounter::ForgetCommands);
    let mut number = 0;
    for pool in exec.live.routes.reachable(exec.own_pool) {
        let store = exec.handles[pool].store();
        if let Some(pages) = exec.pages_of(pool) {
            pages.forgetting();
        }
        let forgotten = match what {
            Forget::Prefix(prefix) => store.forget_prefix(prefix),
            Forget::Tag(tag) => store.forget_tag(tag),
        };
        number = number.max(forgotten.map_err(refusal)?);
    }
    exec.shared.watchers.emit(kind::DELETIONS, |line| {
        line.push_str("type=forget ");
        line.push_str(what.word());
        line.push('=');
        push_uri_encoded(line, what.name());
        line.push_str(&format!(" cmd={command} cfd={}", exec.from.fd));
    });
    Ok(number)
}

fn refusal(error: ForgetError) -> WireError {
    match error {
        ForgetError::NotAPrefix { .. } | ForgetError::TooDeep => WireError::NotAPrefix,
        _ => WireError::BadCommandLineFormat,
    }
}

/// What a key stands for, if the pool it would live in has reserved keys.
#[inline]
pub(crate) fn reserved<'k>(exec: &Exec<'_>, pool: usize, key: &'k [u8]) -> Option<Forget<'k>> {
    let what = Forget::of_reserved_key(key)?;
    let at = exec.live.pools.iter().position(|candidate| candidate.number == pool)?;
    exec.live.settings.pools[at].reserved_keys.then_some(what)
}
