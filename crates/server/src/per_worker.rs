//! One `T` for each worker, made when it is first asked for. Workers come and go while the server runs; what belongs to
//! a number stays, and is the next worker's of that number. Finding one takes no lock and writes nothing.

use std::sync::OnceLock;

use crate::settings::WORKERS_MAX;

/// Workers whose `T`s are made together.
const GROUP: usize = 16;
const GROUPS: usize = WORKERS_MAX.div_ceil(GROUP);

/// See the module.
#[derive(Debug)]
pub(crate) struct PerWorker<T>([OnceLock<Box<[T]>>; GROUPS]);

impl<T: Default> PerWorker<T> {
    /// The one of worker `number`, which is below [`WORKERS_MAX`].
    #[inline]
    pub(crate) fn of(&self, number: usize) -> &T {
        &self.0[number / GROUP].get_or_init(make)[number % GROUP]
    }

    /// All that were made, with the workers' numbers, in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.0.iter().enumerate().flat_map(|(group, made)| {
            made.get().into_iter().flatten().enumerate().map(move |(index, one)| (group * GROUP + index, one))
        })
    }
}

impl<T> Default for PerWorker<T> {
    fn default() -> PerWorker<T> {
        PerWorker([const { OnceLock::new() }; GROUPS])
    }
}

#[cold]
fn make<T: Default>() -> Box<[T]> {
    (0..GROUP).map(|_| T::default()).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn each_worker_has_its_own_and_finds_it_again() {
        let all = PerWorker::<Cell<usize>>::default();
        for number in [0, 15, 16, WORKERS_MAX - 1] {
            all.of(number).set(number + 1);
        }
        let set: Vec<_> =
            all.iter().filter(|(_, one)| one.get() > 0).map(|(number, one)| (number, one.get())).collect();
        assert_eq!(set, [(0, 1), (15, 16), (16, 17), (WORKERS_MAX - 1, WORKERS_MAX)]);
        assert_eq!(all.iter().count(), 3 * GROUP);
    }
}
