package guide

import "strings"

// reader is somebody who looks for something, and the documents that are for them.
type reader struct {
	Name      string
	Documents []document
}

// document is one of the files that are served.
type document struct {
	File  string // in the folder docs
	Name  string // in its address, below /docs/
	About string // a line about it, on the start page; empty if the title says it
	// Own is for a document whose samples are about this very service: they have its address.
	Own bool
}

// readers are in the order of the start page.
var readers = []reader{
	{"You integrate it", []document{
		{"INTEGRATING.md", "integrating", "Start a session, receive its outcome, test both.", true},
		{"GUARANTEES.md", "guarantees", "What is promised, what is not, and how it is shown.", true},
		{"verify/go.md", "verify/go", "", true},
		{"verify/javascript.md", "verify/javascript", "", true},
		{"verify/python.md", "verify/python", "", true},
		{"verify/php.md", "verify/php", "", true},
		{"verify/ruby.md", "verify/ruby", "", true},
	}},
	{"You operate it", []document{
		{"OPERATING.md", "operating", "Run it: alone, on several machines, and through trouble.", false},
		{"CONFIGURATION.md", "configuration", "Every setting, its default and its meaning.", false},
		{"NETWORKS.md", "networks", "Where users sign in, and who is accepted.", false},
		{"CLI.md", "cli", "Every command, with its flags.", false},
		{"UPGRADING.md", "upgrading", "From one version to the next, and back.", false},
		{"SECURITY.md", "security", "What it is safe from, by what, and what it is not.", false},
		{"PERFORMANCE.md", "performance", "What was measured, and what a session costs.", false},
	}},
	{"You change it", []document{
		{"CONTRACT.md", "contract", "The specification that it is built to, and never breaks.", false},
		{"EVIDENCE.md", "evidence", "The tests behind each promise, and what they last measured.", false},
		{"ARCHITECTURE.md", "architecture", "One session through the packages, function by function.", false},
		{"DECISIONS.md", "decisions", "Why it is as it is.", false},
	}},
}

// addresses are the documents' paths below the base URL, by their files.
var addresses = func() map[string]string {
	all := map[string]string{}
	for _, r := range readers {
		for _, d := range r.Documents {
			all[d.File] = d.path()
		}
	}
	return all
}()

func (d document) path() string { return PathStart + "/" + d.Name }

// example is the address of a service in the documents.
const example = "verify.example.com"

// named returns a document's text with a service's address where it is about that service.
func (d document) named(text, base string) string {
	if !d.Own {
		return text
	}
	_, host, _ := strings.Cut(base, "://")
	return strings.NewReplacer("https://"+example, base, example, host).Replace(text)
}
