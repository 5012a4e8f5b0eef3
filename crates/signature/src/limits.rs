//! Limits on what is parsed to verify a signature.

/// Size of a signature. One of RSA 4096 has 1 KiB, one with an SSH certificate 4 KiB.
pub const SIGNATURE_BYTES_MAX: usize = 16 << 10;
/// Size of all keys together: what a Secret can hold.
pub const KEYS_BYTES_MAX: usize = 1 << 20;
/// Number of OpenPGP keys.
pub const OPENPGP_KEYS_MAX: usize = 1_000;
/// Number of signatures and subkeys of an OpenPGP key. Each may be verified once per signature.
pub const OPENPGP_PARTS_MAX: usize = 1_000;
/// Number of lines of an `allowed_signers` file.
pub const SSH_LINES_MAX: usize = 10_000;
/// How far in the future a signature may claim to be made, in seconds: clocks differ.
pub const CLOCK_SKEW_MAX: i64 = 10 * 60;
/// Smallest RSA key, in bits.
pub const RSA_BITS_MIN: usize = 2_048;
/// Largest RSA key, in bits. Larger ones make a verification slow.
pub const RSA_BITS_MAX: usize = 8_192;
