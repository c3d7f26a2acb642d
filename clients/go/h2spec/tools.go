//go:build tools

// Package h2spec pins the judge of HTTP/2 servers that the tests of pages use, and what it needs.
package h2spec

import _ "github.com/summerwind/h2spec/cmd/h2spec"
