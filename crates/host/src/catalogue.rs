//! The tools of this program.

use std::sync::Arc;

use vambrace_core::config::EffectiveConfig;
use vambrace_core::tool::ToolDescriptor;
use vambrace_tools::{Catalogue, OptionalTools};

use crate::error::HostError;

/// The built-in tools.
pub fn built_in_catalogue() -> Result<Arc<Catalogue>, HostError> {
    Catalogue::built_in().map(Arc::new).map_err(|error| HostError::failed(error.message))
}

/// The built-in tools that exist under a configuration.
pub(crate) fn configured_catalogue(settings: &EffectiveConfig) -> Result<Arc<Catalogue>, HostError> {
    let optional = OptionalTools { shell_exec: settings.tools.shell_exec };
    Catalogue::configured(optional).map(Arc::new).map_err(|error| HostError::failed(error.message))
}

/// The facts about the built-in tools that policy needs.
pub(crate) fn built_in_tools() -> Result<Vec<Arc<ToolDescriptor>>, HostError> {
    Ok(descriptors(&*built_in_catalogue()?))
}

/// The facts about the tools of a catalogue.
pub(crate) fn descriptors(catalogue: &Catalogue) -> Vec<Arc<ToolDescriptor>> {
    catalogue.tools().map(|tool| Arc::clone(tool.descriptor())).collect()
}
