package devstack

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
)

func xmllintSoftware() software {
	return software{
		name: "xmllint", server: "xmllint", reads: parseLibxmlVersion, programs: []string{"xmllint"}, atLeast: version{2, 9},
		packages: []string{"libxml2-utils"}, unpacked: "usr/bin",
	}
}

// parseLibxmlVersion reads "20914", which is 2.9.14.
func parseLibxmlVersion(text string) (version, bool) {
	found := regexp.MustCompile(`libxml version (\d+)(\d\d)\d\d`).FindStringSubmatch(text)
	if found == nil {
		return version{}, false
	}
	major, errMajor := strconv.Atoi(found[1])
	minor, errMinor := strconv.Atoi(found[2])
	return version{major, minor}, errMajor == nil && errMinor == nil
}

// XMLLint runs xmllint, which knows schemas and canonical XML independently of us, with arguments, and returns what it
// said. The error carries the end of that. It is found, and installed when it is missing, as the servers are.
func (s *Stack) XMLLint(ctx context.Context, args ...string) (string, error) {
	found, err := s.finder.find(ctx, xmllintSoftware())
	if err != nil {
		return "", err
	}
	out, err := run(ctx, found.env(), found.path("xmllint"), args...)
	if err != nil {
		return out, fmt.Errorf("devstack: %w", err)
	}
	return out, nil
}
