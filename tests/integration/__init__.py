"""Parts of envcheck with real processes: installers and a local index, fake drivers, browsers, whole pages."""
