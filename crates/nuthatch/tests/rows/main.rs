//! Tables behind the program as users run it: before real databases, killed, paused, encrypted and away.

mod coherence;
mod examples;
mod outage;
mod plugin;
mod servers;
mod tls;
