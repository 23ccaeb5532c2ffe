// bridge PORT UPSTREAM-URL: a small bridge that a developer might write: net/http to clients, gorilla/websocket to the
// upstream.
//
// POST /v1/messages forwards its body. GET /v1/messages?cursor=N&wait=S&limit=L returns the pushes after N, or holds
// the request until a push arrives. The bridge keeps the last 10,000 pushes. It has a limited queue to the upstream,
// and a single writer, which gorilla requires. It does not reconnect, confirm or report gaps.
package main

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const retained = 10000

// The pushes, numbered from 1. `changed` is closed and replaced on every push.
type store struct {
	mutex    sync.Mutex
	messages [][]byte
	first    int
	changed  chan struct{}
}

func (s *store) append(message []byte) {
	s.mutex.Lock()
	s.messages = append(s.messages, message)
	if len(s.messages) > 2*retained {
		s.first += len(s.messages) - retained
		s.messages = append([][]byte(nil), s.messages[len(s.messages)-retained:]...)
	}
	close(s.changed)
	s.changed = make(chan struct{})
	s.mutex.Unlock()
}

// The pushes after `cursor` (if it is negative, only new pushes), the cursor after them, and the channel to wait for.
func (s *store) read(cursor, limit int) ([][]byte, int, chan struct{}) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	end := s.first + len(s.messages)
	if cursor < 0 || cursor > end {
		cursor = end
	}
	if cursor < s.first {
		cursor = s.first
	}
	messages := s.messages[cursor-s.first:]
	if len(messages) > limit {
		messages = messages[:limit]
	}
	return messages, cursor + len(messages), s.changed
}

func number(request *http.Request, name string, otherwise int) int {
	value, err := strconv.Atoi(request.URL.Query().Get(name))
	if err != nil {
		return otherwise
	}
	return value
}

func main() {
	pushes := &store{changed: make(chan struct{})}
	queue := make(chan []byte, 1024)

	upstream, _, err := websocket.DefaultDialer.Dial(os.Args[2], nil)
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		for message := range queue {
			if err := upstream.WriteMessage(websocket.TextMessage, message); err != nil {
				log.Fatal(err)
			}
		}
	}()
	go func() {
		for {
			_, message, err := upstream.ReadMessage()
			if err != nil {
				log.Fatal(err)
			}
			pushes.append(message)
		}
	}()

	http.HandleFunc("/v1/messages", func(response http.ResponseWriter, request *http.Request) {
		if request.Method == http.MethodPost {
			body, err := io.ReadAll(http.MaxBytesReader(response, request.Body, 16<<20))
			if err != nil {
				http.Error(response, err.Error(), http.StatusBadRequest)
				return
			}
			select {
			case queue <- body:
				response.Header().Set("Content-Type", "application/json")
				response.WriteHeader(http.StatusAccepted)
				io.WriteString(response, "{\"state\":\"queued\"}\n")
			default:
				http.Error(response, "queue full", http.StatusServiceUnavailable)
			}
			return
		}
		cursor, limit := number(request, "cursor", -1), number(request, "limit", 100)
		messages, next, changed := pushes.read(cursor, limit)
		if wait := number(request, "wait", 25); len(messages) == 0 && wait > 0 {
			timer := time.NewTimer(time.Duration(wait) * time.Second)
			defer timer.Stop()
			select {
			case <-changed:
				messages, next, _ = pushes.read(next, limit)
			case <-timer.C:
			case <-request.Context().Done():
				return
			}
		}
		response.Header().Set("Content-Type", "application/json")
		response.Header().Set("Gateway-Cursor", strconv.Itoa(next))
		body := append([]byte("{\"messages\":["), bytes.Join(messages, []byte(","))...)
		body = append(body, "]}\n"...)
		response.Header().Set("Content-Length", strconv.Itoa(len(body)))
		response.Write(body)
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
