pub const RETIRED: &str = "old.retired";
