//! Tests that every kernel is declared as its file has it.

use crate::arguments::Signature;
use crate::{
    batch, compiled_gemm, curvature, distillation, joined, learned, loss, matrices, optimizer, parameters, passes,
    pictures, shifted,
};
use std::path::Path;

/// Every kernel that is declared.
fn declared() -> impl Iterator<Item = &'static Signature> {
    let own = [
        batch::KERNELS,
        compiled_gemm::KERNELS,
        shifted::KERNELS,
        loss::KERNELS,
        matrices::KERNELS,
        optimizer::KERNELS,
    ];
    let more = [
        joined::KERNELS,
        learned::KERNELS,
        parameters::KERNELS,
        curvature::KERNELS,
        distillation::KERNELS,
        pictures::KERNELS,
    ];
    own.into_iter().chain(more).chain(passes::KERNELS).flatten()
}

/// Every kernel of a file's text: its name and its parameters' names and types.
fn kernels_of(text: &str) -> Vec<(String, Vec<(String, String)>)> {
    let parameter = |text: &str| {
        let text = text.trim();
        let start = text.rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |at| at + 1);
        let (kind, name) = text.split_at(start);
        let kind = match kind.trim() {
            pointer if pointer.contains('*') => "DevicePtr",
            "int" => "i32",
            "u32" => "u32",
            "float" => "f32",
            "double" => "f64",
            other => other,
        };
        (name.to_string(), kind.to_string())
    };
    let kernel = |part: &str| {
        let head = part.split_once(" {").expect("a kernel has a body").0;
        let (head, parameters) = head.rsplit_once('(').expect("a kernel has parameters");
        let name = head.rsplit(|c: char| c.is_whitespace()).next().expect("a kernel has a name");
        let parameters = parameters.trim_end().trim_end_matches(')');
        (name.to_string(), parameters.split(',').map(parameter).collect())
    };
    text.split("extern \"C\" __global__ void").skip(1).map(kernel).collect()
}

#[test]
fn every_kernel_takes_what_its_file_says() {
    for Signature { file, entry, parameters } in declared() {
        let kernels = kernels_of(file.text);
        let found = kernels.iter().find(|(name, _)| name == entry);
        let (_, found) = found.unwrap_or_else(|| panic!("{entry} is not in {}", file.name));
        let found: Vec<(&str, &str)> = found.iter().map(|(name, kind)| (&name[..], &kind[..])).collect();
        assert_eq!(&found[..], *parameters, "{entry} in {}", file.name);
    }
}

#[test]
fn every_kernel_of_every_file_is_declared() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.extension().is_none_or(|extension| extension != "cu") {
            continue;
        }
        let (name, text) = (path.file_name().unwrap().to_str().unwrap(), std::fs::read_to_string(&path).unwrap());
        let declared: Vec<&Signature> = declared().filter(|kernel| kernel.file.name == name).collect();
        assert!(!declared.is_empty(), "no module has {name}");
        assert!(declared.iter().all(|kernel| kernel.file.text.ends_with(&text)), "{name} is another file");
        for (entry, _) in kernels_of(&text) {
            assert!(declared.iter().any(|kernel| kernel.entry == entry), "{entry} in {name}");
        }
    }
}
