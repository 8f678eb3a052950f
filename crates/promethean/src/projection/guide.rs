#![doc = include_str!("../../../../docs/views.md")]
