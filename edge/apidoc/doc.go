// Package apidoc is the description of the public interface: one OpenAPI 3.1 document, and a page that is
// drawn from it once, at the start. Tests of package edge/api compare the running server with the document,
// in both directions.
//
// The law: the document is the only complete description of the interface. The page says nothing that is not
// in it, needs no script, and loads nothing from elsewhere. With a script it remembers in which language a
// reader wants the samples.
package apidoc
