"""One file per version; none is changed once released."""
