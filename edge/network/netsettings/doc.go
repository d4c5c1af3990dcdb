// Package netsettings is how identity networks are set: what an operator writes, the networks that are known
// by name, which identities are accepted, and what follows for asking and reading a provider. It asks nobody:
// package network does that.
package netsettings
