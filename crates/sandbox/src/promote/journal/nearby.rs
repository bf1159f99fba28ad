//! The folder that the last step worked in: files of one folder come one after the other. Nobody keeps it over a step that does
//! something to folders.

use std::ffi::OsStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::sys::mounting::open_within;
use crate::wire::Bytes;

/// Its path, and itself.
#[derive(Default)]
pub(super) struct Nearby(Option<(Bytes, OwnedFd)>);

impl Nearby {
    /// A path's folder, and its name in there.
    pub(super) fn parent<'p>(
        &mut self,
        root: BorrowedFd<'_>,
        path: &'p [u8],
    ) -> Result<(&OwnedFd, &'p OsStr), Errno> {
        let path = Path::new(OsStr::from_bytes(path));
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let above = path.parent().map(|above| above.as_os_str().as_bytes()).unwrap_or_default();
        let known = self.0.take().filter(|(folder, _)| folder == above);
        let known = match known {
            Some(known) => known,
            None => {
                let opened = if above.is_empty() { b"." } else { above };
                (above.to_vec(), open_within(root, opened, OFlags::PATH | OFlags::DIRECTORY)?)
            }
        };
        Ok((&self.0.insert(known).1, name))
    }
}
