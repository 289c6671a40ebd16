//! The recipes that the crate carries: the digits, every cell of the paper's Table 1, and networks that came after it.

macro_rules! recipes {
    ($($folder:literal: $($network:literal),+;)+) => {
        &[$($(
            recipe!($folder, $network, "-sign-sste"),
            recipe!($folder, $network, "-sign-ftpsh"),
            recipe!($folder, $network, "-qrelu-sste"),
            recipe!($folder, $network, "-qrelu-ftpsh"),
            recipe!($folder, $network, "-relu"),
            recipe!($folder, $network, "-saturated-relu"),
        )+)+]
    };
}

macro_rules! recipe {
    ($folder:literal, $network:literal, $ending:literal) => {
        (concat!($network, $ending), include_str!(concat!("../recipes/", $folder, "/", $network, $ending, ".toml")))
    };
}

/// The recipe that is trained when none is given, as TOML.
pub const DIGITS: &str = include_str!("../recipes/digits.toml");

/// The cells of Table 1 by name.
const TABLE_1: &[(&str, &str)] = recipes! {
    "cifar10": "convnet4", "convnet8";
    "imagenet": "alexnet", "resnet18";
};

/// What came after the paper.
const LATER: &[(&str, &str)] = &[
    recipe!("cifar10", "fast", "-sign"),
    recipe!("cifar10", "fast", "-qrelu"),
    recipe!("cifar10", "fast", "-relu"),
    recipe!("cifar10", "bireal18", "-sign"),
    recipe!("cifar10", "bireal18", "-qrelu"),
    recipe!("cifar10", "bireal18", "-relu"),
    recipe!("imagenet", "bireal18", "-sign-sste"),
    recipe!("imagenet", "bireal18", "-sign-ftpsh"),
];

/// The names of all of them, the digits' first.
pub fn names() -> impl Iterator<Item = &'static str> {
    ["digits"].into_iter().chain(TABLE_1.iter().chain(LATER).map(|(name, _)| *name))
}

/// A recipe by its file's name without the ending, such as `digits` or `convnet8-sign-ftpsh`, as TOML.
pub fn built_in(name: &str) -> Option<&'static str> {
    let table = TABLE_1.iter().chain(LATER).find(|(known, _)| *known == name).map(|(_, text)| *text);
    if name == "digits" { Some(DIGITS) } else { table }
}
