// Command planner answers rollout questions with the planner of the DisaggregatedSet controller itself.
//
// It reads one JSON object per line and writes one JSON object per line, in order. A line with "initial", "target",
// "surge" and "unavailable" is answered with every state of the rollout; with "old" and "new" as well, with the one
// state that follows ("step", null when the planner has none). A line that cannot be answered yields {"error": ...}.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	upstream "sigs.k8s.io/lws/pkg/controllers/disaggregatedset"
)

// One number per role, all lists of equal length.
type question struct {
	Initial     []int `json:"initial"`
	Target      []int `json:"target"`
	Surge       []int `json:"surge"`
	Unavailable []int `json:"unavailable"`
	Old         []int `json:"old"`
	New         []int `json:"new"`
}

type state struct {
	Old []int `json:"old"`
	New []int `json:"new"`
}

type plan struct {
	Steps []state `json:"steps"`
}

type next struct {
	Step *state `json:"step"`
}

type failure struct {
	Error string `json:"error"`
}

func (q question) check() error {
	roles := len(q.Initial)
	named := map[string][]int{"target": q.Target, "surge": q.Surge, "unavailable": q.Unavailable}
	if q.Old != nil || q.New != nil {
		named["old"], named["new"] = q.Old, q.New
	}
	for name, list := range named {
		if len(list) != roles {
			return fmt.Errorf("%q has %d entries, \"initial\" has %d", name, len(list), roles)
		}
	}
	return nil
}

func answer(line []byte) any {
	var q question
	if err := json.Unmarshal(line, &q); err != nil {
		return failure{err.Error()}
	}
	if err := q.check(); err != nil {
		return failure{err.Error()}
	}
	pace := make([]upstream.RollingUpdateConfig, len(q.Initial))
	for i := range pace {
		pace[i] = upstream.RollingUpdateConfig{MaxSurge: q.Surge[i], MaxUnavailable: q.Unavailable[i]}
	}
	if q.Old != nil {
		step := upstream.ComputeNextStep(q.Initial, q.Old, q.New, q.Target, pace)
		if step == nil {
			return next{}
		}
		return next{&state{step.Past, step.New}}
	}
	out := plan{Steps: []state{}}
	for _, step := range upstream.ComputeAllSteps(q.Initial, q.Target, pace) {
		out.Steps = append(out.Steps, state{step.Past, step.New})
	}
	return out
}

func run() error {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 0, 64*1024), 16*1024*1024)
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	for in.Scan() {
		if len(in.Bytes()) == 0 {
			continue
		}
		if err := encoder.Encode(answer(in.Bytes())); err != nil {
			return err
		}
		// Flushed per line so that a caller may ask and wait.
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return in.Err()
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "planner:", err)
		os.Exit(1)
	}
}
