//! One server: git servers that never answer, that fail in many ways, and runtimes whose access changes.
