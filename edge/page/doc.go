// Package page holds what all pages of the edge share: assets under names that change with their content,
// the tokens and components of their style, values that somebody else typed made safe to show, the headers of
// every answer, the reading of forms, and the refusal of posts that another site caused. What a page says,
// and what only it shows, is its own package's business.
package page
