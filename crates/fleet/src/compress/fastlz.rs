//! FastLZ (Ariya Hidayat), as php-memcached bundles it. Both levels are read, the first is written. There is no crate of it that is kept.
//!
//! A block is a sequence of instructions, told apart by the upper three bits of their first byte; those of the very first byte are the
//! level, less one.
//!
//! | first byte | what follows | what it does |
//! |---|---|---|
//! | 000lllll | l + 1 bytes | they are copied |
//! | nnnooooo, n from 1 to 6 | o' | n + 2 bytes are copied from o·256 + o' + 1 bytes back |
//! | 111ooooo | m, o' | m + 9 bytes are copied from there; at level 2, each m of 255 is followed by another that is added |
//! | at level 2, with o = 31 and o' = 255 | two bytes, high and low | the distance is theirs + 8192 |

use super::CompressError;

const DAMAGED: CompressError = CompressError::Damaged("expected a fastlz block");

/// The longest run of bytes in one instruction, the longest copy and the farthest, at level 1.
const RUN_MAX: usize = 32;
const COPY_MAX: usize = 264;
const DISTANCE_MAX: usize = 8192;
/// Places of the table of where three bytes were seen.
const SEEN_BITS: u32 = 13;

/// Expands `block` into `out` to at most `max` bytes.
pub(super) fn expand(block: &[u8], max: usize, out: &mut Vec<u8>) -> Result<(), CompressError> {
    let mut bytes = block.iter().copied();
    let mut next = || bytes.next().ok_or(DAMAGED);
    let Ok(first) = next() else { return Err(DAMAGED) };
    let level = first >> 5;
    if level > 1 {
        return Err(DAMAGED);
    }
    let mut control = first & 31;
    loop {
        let high = usize::from(control & 31);
        let length = match control >> 5 {
            0 => high + 1,
            7 => {
                let mut length = 9;
                loop {
                    let more = next()?;
                    length += usize::from(more);
                    if level == 0 || more != 255 || length > max {
                        break length;
                    }
                }
            }
            short => usize::from(short) + 2,
        };
        if out.len() + length > max {
            return Err(CompressError::TooLarge(max));
        }
        if control < 32 {
            for _ in 0..length {
                out.push(next()?);
            }
        } else {
            let low = next()?;
            let distance = match (level, high, low) {
                (1, 31, 255) => usize::from(u16::from_be_bytes([next()?, next()?])) + DISTANCE_MAX,
                _ => high * 256 + usize::from(low) + 1,
            };
            let start = out.len().checked_sub(distance).ok_or(DAMAGED)?;
            // What is copied may be what was just written.
            for at in start..start + length {
                out.push(out[at]);
            }
        }
        match next() {
            Ok(byte) => control = byte,
            Err(_) => return Ok(()),
        }
    }
}

/// Appends `value` to `out` as a block of level 1.
pub(super) fn compress(value: &[u8], out: &mut Vec<u8>) {
    let mut seen = vec![usize::MAX; 1 << SEEN_BITS];
    // `run` is where the bytes begin that no copy was found for.
    let (mut at, mut run) = (0, 0);
    while at + 3 <= value.len() {
        let three = u32::from_le_bytes([value[at], value[at + 1], value[at + 2], 0]);
        let slot = (three.wrapping_mul(0x9e37_79b1) >> (32 - SEEN_BITS)) as usize;
        let before = std::mem::replace(&mut seen[slot], at);
        let is_copy = before != usize::MAX
            && at - before <= DISTANCE_MAX
            && value[before..before + 3] == value[at..at + 3]
            // The first instruction has to be a run.
            && at > 0;
        if !is_copy {
            at += 1;
            continue;
        }
        let same =
            value[before..].iter().zip(&value[at..]).take(COPY_MAX).take_while(|(one, other)| one == other).count();
        literals(&value[run..at], out);
        let distance = at - before - 1;
        let (high, low) = ((distance >> 8) as u8, distance as u8);
        match same {
            3..=8 => out.extend([((same - 2) as u8) << 5 | high, low]),
            _ => out.extend([7 << 5 | high, (same - 9) as u8, low]),
        }
        at += same;
        run = at;
    }
    literals(&value[run..], out);
}

fn literals(bytes: &[u8], out: &mut Vec<u8>) {
    for run in bytes.chunks(RUN_MAX) {
        out.push((run.len() - 1) as u8);
        out.extend_from_slice(run);
    }
}
