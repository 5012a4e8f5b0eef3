//! One repository: packs that inflate without end, diagnostics without end, files that nothing refers to.

mod files;
mod packs;
