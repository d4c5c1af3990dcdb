// Package config has the settings of verifyd: Settings are the raw values of flags, environment and file, and
// Settings.Config checks them all at once and returns the Config that a service runs with.
//
// A setting has one name: --callback-timeout, VERIFYD_CALLBACK_TIMEOUT, callback_timeout in the YAML file.
// Faults names it in all its forms, with what is wrong and an example. Values that may be secrets are never
// shown.
package config
