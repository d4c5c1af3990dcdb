// Package site has what all pages of the dashboard share: who makes a request and what they may do, the frame
// around a page, forms, messages after a redirect, problem pages, and the bound of pages that read much.
//
// A package of pages describes itself in a Part (templates, template functions, messages). New joins the
// parts and checks all templates, so that an error in one fails the start and not a request.
package site
