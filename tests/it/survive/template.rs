//! One template: a typo in an override of a source.
