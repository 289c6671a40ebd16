//! The functions of the driver that this crate calls, so that one without them is refused before it is used.

/// Of the driver.
pub(super) const DRIVER: &[&str] = &[
    "cuCtxGetStreamPriorityRange",
    "cuCtxSetCurrent",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxSetFlags_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncSetAttribute",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphUpload",
    "cuInit",
    "cuLaunchCooperativeKernel",
    "cuLaunchKernel",
    "cuMemAlloc_v2",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyHtoD_v2",
    "cuMemsetD8Async",
    "cuMemsetD8_v2",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
];

#[cfg(test)]
mod tests {
    use super::super::bound::{cublas_lt, cudnn};
    use super::*;
    use std::path::Path;

    /// Every call in this crate's text is in a list, and nothing else is.
    #[test]
    fn the_lists_are_what_is_called() {
        let mut called: Vec<String> = Vec::new();
        visit(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut |text| {
            for (at, _) in text.match_indices("sys::").chain(text.match_indices("api::")) {
                let name: String = text[at + 5..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                let after = text[at + 5 + name.len()..].chars().next();
                if name.starts_with("cu") && after == Some('(') && name != "culib" {
                    called.push(name);
                }
            }
        });
        called.sort();
        called.dedup();
        let mut listed: Vec<&str> = [DRIVER, cudnn::NAMES, cublas_lt::NAMES].concat();
        listed.sort_unstable();
        assert_eq!(called, listed);
    }

    fn visit(folder: &Path, text: &mut impl FnMut(&str)) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                visit(&path, text);
            } else if path
                .file_name()
                .is_some_and(|name| name != "library.rs" && name != "functions.rs" && name != "bound.rs")
            {
                text(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }
}
