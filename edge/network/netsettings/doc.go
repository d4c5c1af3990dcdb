// Package netsettings is the settings of identity networks: what an operator writes, the networks that are
// known by name, which identities are accepted, and what follows for requests to a provider and for reading
// its answers. It sends no request: package network does that.
package netsettings
