//! One repository: packs that inflate without end, checks and diagnostics without end, files that nothing refers to.

mod checks;
mod files;
mod loose;
mod packs;
mod share;
