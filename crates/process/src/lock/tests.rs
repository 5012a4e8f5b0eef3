use std::sync::Arc;

use super::*;

#[test]
fn a_lock_outlives_a_panic_of_its_holder() {
    let value = Arc::new(Mutex::new(1));
    let held = Arc::clone(&value);
    let holder = std::thread::spawn(move || {
        let mut held = held.lock();
        *held = 2;
        panic!("while the lock is held");
    });
    assert!(holder.join().is_err());
    assert_eq!(*value.lock(), 2);

    let value = Arc::new(RwLock::new(1));
    let held = Arc::clone(&value);
    let holder = std::thread::spawn(move || {
        let mut held = held.write();
        *held = 2;
        panic!("while the lock is held");
    });
    assert!(holder.join().is_err());
    assert_eq!(*value.read(), 2);
    *value.write() = 3;
    assert_eq!(*value.read(), 3);
}
