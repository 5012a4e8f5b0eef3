//! Locks that outlive a panic.
//!
//! The standard library's locks are poisoned once a thread panics while it holds them, and every later use must say
//! what then. Here it is said once: the value is used as it is. A pass that panics is caught, counted and tried again
//! (see the daemon), and must not take down whatever shares a lock with it.
//!
//! That is sound as long as every edit under a lock is whole before anything in it can panic. So: compute first, then
//! lock, then assign; no caller's code, no `expect` and no `await` while a lock is held.

use std::sync::{MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard};

/// As [`std::sync::Mutex`], without poisoning.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

/// As [`std::sync::RwLock`], without poisoning.
#[derive(Debug, Default)]
pub struct RwLock<T>(std::sync::RwLock<T>);

// === impl Mutex ===

impl<T> Mutex<T> {
    /// Holds a value.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }

    /// The value, for this thread alone. Blocks until no other thread has it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl RwLock ===

impl<T> RwLock<T> {
    /// Holds a value.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(std::sync::RwLock::new(value))
    }

    /// The value, to read. Blocks until no other thread writes.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, to write. Blocks until no other thread has it.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
