// Package sdk hands out the software development kits that fit this service: the service that an integrator
// already talks to serves them, in its own version, so that no registry is needed.
//
//	GET /sdk, /sdk/                              a page with one install line each
//	GET /sdk/verifyd-X.Y.Z.tgz                   JavaScript and TypeScript, for npm
//	GET /sdk/verifyd-X.Y.Z-py3-none-any.whl      Python, for pip
//	GET /sdk/verifyd.php, /sdk/verifyd.rb        PHP and Ruby, one file each
//	GET /sdk/go                                  where the go command finds the module
//	GET /sdk/mod/…                               the module, which is package client
//	GET /assets/<name>                           the page's style sheet, immutable
//
// The laws:
//
//   - A kit has no dependencies, and does what package client does: it repeats only a start, under one
//     idempotency key, and its receiver answers with the same statuses.
//   - The same source gives the same bytes: archives hold no time and no owner of this machine.
//
// The kits' own sources are the folders javascript, python, php and ruby; @VERSION@ in them is the service's
// version.
package sdk
