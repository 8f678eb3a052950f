#![doc = include_str!("../../../../docs/views-in-mongodb.md")]
