//! One repository: packs that inflate without end, checks and diagnostics without end, files that nothing refers to.

mod checks;
mod files;
mod packs;
mod share;
