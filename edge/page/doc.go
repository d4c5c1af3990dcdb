// Package page holds what all pages of the edge share: assets under names that change with their content, the
// tokens and components of their style, values that somebody else typed, made safe to show, the headers of
// every answer, the reading of forms, and the refusal of posts that another site caused. The text of a page,
// and anything that only it shows, belong to its own package.
package page
