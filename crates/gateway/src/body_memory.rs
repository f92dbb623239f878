//! Memory of the bodies that have arrived: for each caller, and for all of them. Pure.
//!
//! A client decides how fast its body arrives. So nobody waits for memory: a body for which there is none is rejected.

use std::collections::HashMap;

use crate::{limits::Exceeded, token::Digest};

/// Bytes of all bodies at the same time. Objects and requests made from a body need about five times its size, and
/// the chart gives a Pod 512 MiB.
const ALL: usize = 48 * 1024 * 1024;

/// Bytes of the bodies of one caller at the same time. A caller whose bodies do not end leaves room for others.
const PER_CALLER: usize = 16 * 1024 * 1024;

/// The caller of all sign-ins. Their tokens are in their bodies, so nobody has authenticated them yet. Together
/// they have the memory of one caller.
pub(crate) const SIGN_INS: Digest = [0; 32];

/// The bytes of bodies that are in memory.
#[derive(Debug, Default)]
pub(crate) struct BodyMemory {
    callers: HashMap<Digest, usize>,
    all: usize,
}

impl BodyMemory {
    /// Counts bytes of a body, or returns the limit that they exceed. [`BodyMemory::release`] must follow.
    pub(crate) fn take(&mut self, caller: Digest, bytes: usize) -> Result<(), Exceeded> {
        let own = self.callers.get(&caller).copied().unwrap_or_default();
        if own.saturating_add(bytes) > PER_CALLER {
            return Err(Exceeded::Bodies);
        }
        if self.all.saturating_add(bytes) > ALL {
            return Err(Exceeded::AllBodies);
        }
        self.callers.insert(caller, own + bytes);
        self.all += bytes;
        Ok(())
    }

    /// Records that bytes are not in memory any more.
    pub(crate) fn release(&mut self, caller: Digest, bytes: usize) {
        self.all = self.all.saturating_sub(bytes);
        let own = self.callers.get(&caller).copied().unwrap_or_default();
        match own.saturating_sub(bytes) {
            0 => self.callers.remove(&caller),
            left => self.callers.insert(caller, left),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: Digest = [1; 32];
    const BOB: Digest = [2; 32];
    const MIB: usize = 1024 * 1024;

    #[test]
    fn a_caller_leaves_room_for_others_and_all_of_them_have_a_limit() {
        let mut memory = BodyMemory::default();
        for _ in 0..16 {
            assert_eq!(memory.take(ANN, MIB), Ok(()));
        }
        assert_eq!(memory.take(ANN, 1), Err(Exceeded::Bodies));
        assert_eq!(memory.take(BOB, 16 * MIB), Ok(()));
        assert_eq!(memory.take(SIGN_INS, 16 * MIB), Ok(()));
        assert_eq!(memory.take(SIGN_INS, 1), Err(Exceeded::Bodies));
        assert_eq!(memory.take([3; 32], 1), Err(Exceeded::AllBodies));
        memory.release(ANN, MIB);
        assert_eq!(memory.take([3; 32], MIB), Ok(()));
        assert_eq!(memory.take(ANN, 1), Err(Exceeded::AllBodies));
    }

    #[test]
    fn a_rejected_body_counts_nothing_and_an_ended_one_leaves_nothing() {
        let mut memory = BodyMemory::default();
        assert_eq!(memory.take(ANN, usize::MAX), Err(Exceeded::Bodies));
        assert_eq!(memory.take(ANN, 5), Ok(()));
        assert_eq!(memory.take(ANN, 3), Ok(()));
        memory.release(ANN, 8);
        assert_eq!((memory.callers.len(), memory.all), (0, 0));
    }
}
