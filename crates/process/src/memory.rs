//! Gives memory back to the system after a burst.
//!
//! The allocator of glibc keeps what was freed: after thousands of connections it holds their memory for the next ones,
//! and the pod stays near its limit.

/// Follows a number of connections, and says when memory is worth giving back.
#[derive(Debug, Default)]
pub struct Ebb {
    /// The highest number since memory was last given back.
    peak: usize,
}

/// Memory is given back after this many connections have ended: some MiB.
const CONNECTIONS_MIN: usize = 256;

// === impl Ebb ===

impl Ebb {
    /// Takes the present number of connections. Returns true once at least half of them, and a few hundred, have ended.
    pub fn falls_to(&mut self, connections: usize) -> bool {
        self.peak = self.peak.max(connections);
        let falls = connections + CONNECTIONS_MIN <= self.peak && connections <= self.peak / 2;
        if falls {
            self.peak = connections;
        }
        falls
    }
}

/// Gives free memory back to the system. Takes milliseconds, so run it on a thread that may block. Does nothing with
/// another C library than glibc.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        #[expect(unsafe_code, reason = "the C library has no safe interface")]
        // SAFETY: it takes a number, touches only free memory of the allocator, and takes the allocator's own locks.
        let given = unsafe { libc::malloc_trim(0) };
        tracing::debug!(given = given != 0, "gave free memory back");
    }
}

#[cfg(test)]
mod tests {
    use super::Ebb;

    #[test]
    fn memory_is_given_back_once_after_each_burst() {
        for (numbers, expected) in [
            (&[0, 0][..], &[false, false][..]),
            (&[200, 0], &[false, false]),
            (&[1000, 600, 500, 400, 0], &[false, false, true, false, true]),
            (&[10_000, 9_000, 0, 0, 300, 0], &[false, false, true, false, false, true]),
        ] {
            let mut ebb = Ebb::default();
            let found: Vec<bool> = numbers.iter().map(|number| ebb.falls_to(*number)).collect();
            assert_eq!(found, expected, "{numbers:?}");
        }
    }
}
