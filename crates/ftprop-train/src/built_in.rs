//! The recipes that the crate carries: the digits, every cell of the paper's Table 1, and networks that came after it.

use crate::config;

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

macro_rules! later {
    ($($prefix:literal $folder:literal: $($network:literal),+;)+) => {
        &[$($(
            (concat!($prefix, $network, "-sign"), include_str!(concat!("../recipes/", $folder, "/", $network, "-sign.toml"))),
            (concat!($prefix, $network, "-qrelu"), include_str!(concat!("../recipes/", $folder, "/", $network, "-qrelu.toml"))),
            (concat!($prefix, $network, "-relu"), include_str!(concat!("../recipes/", $folder, "/", $network, "-relu.toml"))),
        )+)+]
    };
}

/// What came after the paper; the names of what is for CIFAR-100 say so.
const LATER: &[(&str, &str)] = later! {
    "" "cifar10": "fast", "vgg_small", "resnet20", "bireal18";
    "cifar100-" "cifar100": "fast", "vgg_small", "resnet20", "bireal18";
};

/// ImageNet's ResNet-18 with a way around every convolution, as the table's own is trained.
const BESIDE_TABLE_1: &[(&str, &str)] =
    &[recipe!("imagenet", "bireal18", "-sign-sste"), recipe!("imagenet", "bireal18", "-sign-ftpsh")];

/// ResNet-18 for CIFAR's small pictures, by the settings of the table's convnet8.
const SMALL_RESNETS: &[(&str, &str)] = recipes! { "cifar10": "cifar-resnet18"; };

/// For photographs of few classes.
const PHOTOGRAPHS: (&str, &str) =
    ("imagenette-bireal18-sign", include_str!("../recipes/imagenette/bireal18-sign.toml"));

/// For a CPU.
const QUICK: (&str, &str) = recipe!("cifar10", "quick", "-sign");

/// Taught by another network: the paper's convnet8, and ResNet-18 with a way around every convolution.
const TAUGHT: &[(&str, &str)] = &[
    recipe!("cifar10", "convnet8", "-sign-taught"),
    recipe!("cifar10", "convnet8", "-qrelu-taught"),
    recipe!("cifar10", "bireal18", "-sign-taught"),
    recipe!("cifar10", "bireal18", "-qrelu-taught"),
    ("cifar100-bireal18-sign-taught", include_str!("../recipes/cifar100/bireal18-sign-taught.toml")),
];

/// All but the digits.
fn all() -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    TABLE_1.iter().chain(BESIDE_TABLE_1).chain(SMALL_RESNETS).chain(TAUGHT).chain([&QUICK, &PHOTOGRAPHS]).chain(LATER)
}

/// The names of all of them, the digits' first.
pub fn names() -> impl Iterator<Item = &'static str> {
    ["digits"].into_iter().chain(all().map(|(name, _)| *name))
}

/// The recipe that a name without a recipe may mean: one that begins with it, or else is spelt much like it.
pub fn nearest(name: &str) -> Option<&'static str> {
    let begins = names().find(|known| !name.is_empty() && known.starts_with(name));
    begins.or_else(|| config::nearest(name, &names().collect::<Vec<_>>()))
}

/// A recipe by its file's name without the ending, such as `digits` or `convnet8-sign-ftpsh`, as TOML.
pub fn built_in(name: &str) -> Option<&'static str> {
    let table = all().find(|(known, _)| *known == name).map(|(_, text)| *text);
    if name == "digits" { Some(DIGITS) } else { table }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_means_the_nearest() {
        assert_eq!(nearest("digit"), Some("digits"));
        assert_eq!(nearest("dgits"), Some("digits"));
        assert_eq!(nearest("convnet8"), Some("convnet8-sign-sste"));
        assert_eq!(nearest("convnet8-sign-ftphs"), Some("convnet8-sign-ftpsh"));
        assert_eq!((nearest("nonsense-of-mine"), nearest("")), (None, None));
    }
}
