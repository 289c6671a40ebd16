//! What people are told where something is misspelt, missing or out of place.

mod common;

use common::Temp;

#[test]
fn a_misspelt_recipe_is_answered_with_the_nearest() {
    let temp = Temp::new();
    for arguments in ["train --recipe digit", "sweep --recipe digit --grid optimizer.lr=1e-3,1e-4 --out s"] {
        temp.run(arguments).refused(1, &["no built-in recipe 'digit'", "did you mean digits?", "ftprop recipes"]);
    }
    temp.run("train --recipe no/digits").refused(1, &["no/digits", "no such file"]);
    temp.run("train --recipe digit.toml").refused(1, &["digit.toml", "no such file"]);
    temp.run("summary digit").refused(1, &["no such file", "did you mean digits?"]);
    temp.run("summary runs/digits").refused(1, &["runs/digits", "no such file"]);
    temp.run("recipes digit").refused(1, &["no built-in recipe 'digit'", "did you mean digits?"]);
    let unknown = temp.run("recipes of-nobody-at-all");
    unknown.refused(1, &["no built-in recipe 'of-nobody-at-all'", "ftprop recipes"]);
    assert!(!unknown.err.contains("did you mean") && !unknown.err.contains("24 cells"), "{unknown:?}");
}
