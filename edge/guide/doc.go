// Package guide serves the repository's own documents as pages, so that users of a service read the documents
// of its version:
//
//	GET /docs, /docs/       the start page: a map by reader, and the contents of the interface's description
//	GET /docs/…             a document of the folder docs, as in /docs/integrating or /docs/verify/go
//	GET /docs/search.json   what the search looks through
//	GET /assets/<name>      the style sheet, the script and the pictures, immutable
//
// The description of the interface itself is the page /docs/api (package apidoc).
//
// The laws:
//
//   - The files are the only source of a page's text. A document is served, or it is not linked to: a link to
//     a file that is not served becomes its name as code.
//   - Only Markdown becomes HTML: raw HTML in a document is left out.
//   - A page needs no script. Only the search does; it asks the server for nothing but its index, and is
//     absent without a script.
//   - Addresses are kept: a heading's anchor is the one that it has in the repository, and the start page has
//     the anchors of the description, which was at /docs.
package guide
