//! The example of `examples/shop.rs`, as its reader runs it: collections, outbox, changefeed, consumer and
//! projection, through kills, with the right numbers at the end.

use std::process::Command;

use crate::replica_set::url;

#[test]
fn the_shop_comes_out_right() {
    let here = std::env::current_exe().unwrap();
    let built = here.parent().and_then(|deps| deps.parent()).unwrap().join("examples/shop");
    let output = Command::new(&built).env("PROM_MONGO_URL", url()).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", built.display()));
    let (said, wrong) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{wrong}");
    assert!(said.contains("2 kills: every number is right"), "{said}");
}
