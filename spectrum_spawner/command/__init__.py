"""The command `spectrum` of admins, leads and CI: the service's API, typed. It knows nothing else
of Spectrum: what it may do is what the token in $SPECTRUM_TOKEN may."""
