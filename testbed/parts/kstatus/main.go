// Judges objects as kstatus does: one JSON object per line in, one word per line out.
package main

import (
	"bufio"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

// Longer than any object that the API server stores.
const lineLimit = 16 << 20

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, lineLimit)
	out := bufio.NewWriter(os.Stdout)
	for lines.Scan() {
		var object unstructured.Unstructured
		if err := object.UnmarshalJSON(lines.Bytes()); err != nil {
			return err
		}
		result, err := status.Compute(&object)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, result.Status)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return out.Flush()
}
