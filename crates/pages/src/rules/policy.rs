//! The policy of a stored response: computed once by [`super::judge`], compared on every hit.

use super::UnixSeconds;
use super::request::Asked;

/// What may be done with a stored response, and until when. All moments are exclusive ends: at `fresh_until` it is stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// When it would have been of age 0: its age is the time since then (RFC 9111, 4.2.3).
    pub born: UnixSeconds,
    /// It may be served as it is until then.
    pub fresh_until: UnixSeconds,
    /// It may be served while a refresh is under way until then (RFC 5861, 3).
    pub while_revalidate_until: UnixSeconds,
    /// It may be served when the origin fails until then (RFC 5861, 4).
    pub if_error_until: UnixSeconds,
    /// It is of use, if only to be revalidated, until then: the item's expiry.
    pub keep_until: UnixSeconds,
    /// What else is to be known.
    pub flags: Flags,
}

/// Facts about a stored response, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    /// Every use needs the origin's consent (`no-cache`): it was never fresh.
    pub const NO_CACHE: Self = Self(1);
    /// Never served stale because a client would take it (`no-cache`, `must-revalidate`, `proxy-revalidate`, `s-maxage`).
    pub const MUST_REVALIDATE: Self = Self(1 << 1);
    /// Freshness is the cache's guess (RFC 9111, 4.2.2).
    pub const HEURISTIC: Self = Self(1 << 2);
    /// Does not change while fresh (RFC 8246): a client's reload does not reach the origin.
    pub const IMMUTABLE: Self = Self(1 << 3);
    /// Can be revalidated: has an `ETag` or a `Last-Modified`.
    pub const VALIDATOR: Self = Self(1 << 4);
    /// Is of a request with `Authorization`, stored with the origin's consent (RFC 9111, 3.5).
    pub const AUTHORIZATION: Self = Self(1 << 5);
    /// Is a part of a representation (206).
    pub const PARTIAL: Self = Self(1 << 6);

    /// Whether all bits of another are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These and those of another.
    #[must_use]
    pub const fn with(self, other: Self, on: bool) -> Self {
        if on { Self(self.0 | other.0) } else { self }
    }

    /// These but those of another.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// What to do with a request and the stored response that was found for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Serve it.
    Hit,
    /// Serve it, stale, and have it refreshed behind the client's back; one refresh however many ask.
    HitWhileRevalidate,
    /// Serve it, stale: the client accepts that.
    HitStale,
    /// Ask the origin whether it still holds ([`super::validate::conditional_request`]); when the origin fails, ask
    /// [`Policy::on_error`].
    Revalidate,
    /// It is of no use: ask the origin for a new one.
    Miss,
    /// The client takes nothing but a stored response, and there is none for it: 504 (RFC 9111, 5.2.1.7).
    GatewayTimeout,
}

/// What to do when the origin could not be asked or answered 500, 502, 503 or 504.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// Serve the stored response, stale.
    Serve,
    /// Pass the error on, or answer 504 when there is none.
    Fail,
}

impl Policy {
    /// Whether it can be served, or revalidated, without a client's leave to serve it stale.
    #[must_use]
    pub(super) fn is_of_use_at(&self, now: UnixSeconds) -> bool {
        let until = self.fresh_until.max(self.while_revalidate_until).max(self.if_error_until);
        now < until || self.flags.has(Flags::VALIDATOR) && now < self.keep_until
    }

    /// What to do with a request and this response.
    #[must_use]
    pub fn decide(&self, asked: &Asked, now: UnixSeconds) -> Decision {
        if asked.directives {
            return self.decide_directives(asked, now);
        }
        if now < self.fresh_until {
            return Decision::Hit;
        }
        if now < self.while_revalidate_until {
            return Decision::HitWhileRevalidate;
        }
        self.refetch(now)
    }

    /// What to do without a stored response.
    #[must_use]
    pub fn decide_without(asked: &Asked) -> Decision {
        if asked.only_if_cached { Decision::GatewayTimeout } else { Decision::Miss }
    }

    fn decide_directives(&self, asked: &Asked, now: UnixSeconds) -> Decision {
        let decision = self.decide_fetching(asked, now);
        match decision {
            Decision::Revalidate | Decision::Miss if asked.only_if_cached => Decision::GatewayTimeout,
            _ => decision,
        }
    }

    fn decide_fetching(&self, asked: &Asked, now: UnixSeconds) -> Decision {
        let fresh = now < self.fresh_until;
        if fresh && self.flags.has(Flags::IMMUTABLE) && asked.min_fresh_seconds == 0 {
            return Decision::Hit;
        }
        // max-age=0 is how browsers reload: nothing is that young, whatever the seconds say.
        let is_too_old = |seconds: u32| seconds == 0 || self.age_seconds(now) > seconds;
        if asked.no_cache || asked.max_age_seconds.is_some_and(is_too_old) {
            return self.refetch(now);
        }
        if fresh && now.saturating_add(i64::from(asked.min_fresh_seconds)) < self.fresh_until {
            return Decision::Hit;
        }
        if asked.min_fresh_seconds > 0 {
            return self.refetch(now);
        }
        if now < self.while_revalidate_until {
            return Decision::HitWhileRevalidate;
        }
        let acceptable = asked
            .max_stale_seconds
            .is_some_and(|seconds| seconds == u32::MAX || now.saturating_sub(self.fresh_until) <= i64::from(seconds));
        if acceptable && !self.flags.has(Flags::MUST_REVALIDATE) {
            return Decision::HitStale;
        }
        self.refetch(now)
    }

    /// What to do when the origin failed to answer.
    #[must_use]
    pub fn on_error(&self, asked: &Asked, now: UnixSeconds) -> OnError {
        let accepted_until = match asked.stale_if_error_seconds {
            Some(seconds) if !self.flags.has(Flags::MUST_REVALIDATE) => {
                self.fresh_until.saturating_add(i64::from(seconds))
            }
            _ => self.if_error_until,
        };
        if now < accepted_until.max(self.if_error_until) { OnError::Serve } else { OnError::Fail }
    }

    /// The age to announce (RFC 9111, 4.2.3).
    #[must_use]
    pub fn age_seconds(&self, now: UnixSeconds) -> u32 {
        u32::try_from(now.saturating_sub(self.born).max(0)).unwrap_or(u32::MAX)
    }

    fn refetch(&self, now: UnixSeconds) -> Decision {
        if self.flags.has(Flags::VALIDATOR) && now < self.keep_until { Decision::Revalidate } else { Decision::Miss }
    }
}
