import Testing

@testable import HTTPCodec

@Suite struct ConnectionStateTests {
  /// The state machine can reach only the pairs of states in this list, and reaches all of them.
  @Test func reachesOnlyTheListedPairsOfStates() {
    var reached: [ConnectionState] = [ConnectionState()]
    var next = 0
    while next < reached.count {
      for input in ConnectionState.Input.allCases {
        if let state = reached[next].after(input), !reached.contains(state) { reached.append(state) }
      }
      next += 1
    }
    let pairs = Set(reached.map { "\($0.request) \($0.response) \($0.keepsAlive)" })
    #expect(
      pairs == [
        "idle idle true",
        "body pending true", "body pending false", "done pending true", "done pending false",
        "body body true", "body body false", "done body true", "done body false",
        "body done true",
        "failed pending false", "failed body false",
        "closed closed false",
      ])
  }

  /// The whole table: each reachable pair with each input, legal or illegal. Columns: requestHead, requestEnd,
  /// requestFailed, endOfInput, keepAliveRefused, interimResponse, responseHead, responseEnd.
  @Test(arguments: [
    (
      "idle idle true",
      ["body pending true", "-", "failed pending false", "closed closed false", "closed closed false", "-", "-", "-"]
    ),
    (
      "body pending true",
      [
        "-", "done pending true", "failed pending false", "-", "body pending false", "body pending true",
        "body body true", "-",
      ]
    ),
    (
      "body pending false",
      [
        "-", "done pending false", "failed pending false", "-", "body pending false", "body pending false",
        "body body false", "-",
      ]
    ),
    ("done pending true", ["-", "-", "-", "-", "done pending false", "done pending true", "done body true", "-"]),
    ("done pending false", ["-", "-", "-", "-", "done pending false", "done pending false", "done body false", "-"]),
    (
      "body body true",
      ["-", "done body true", "closed closed false", "-", "body body false", "-", "-", "body done true"]
    ),
    (
      "body body false",
      ["-", "done body false", "closed closed false", "-", "body body false", "-", "-", "closed closed false"]
    ),
    ("done body true", ["-", "-", "-", "-", "done body false", "-", "-", "idle idle true"]),
    ("done body false", ["-", "-", "-", "-", "done body false", "-", "-", "closed closed false"]),
    ("body done true", ["-", "idle idle true", "closed closed false", "-", "closed closed false", "-", "-", "-"]),
    ("failed pending false", ["-", "-", "-", "-", "failed pending false", "-", "failed body false", "-"]),
    ("failed body false", ["-", "-", "-", "-", "failed body false", "-", "-", "closed closed false"]),
    ("closed closed false", ["-", "-", "-", "-", "closed closed false", "-", "-", "-"]),
  ])
  func everyInputLeadsToTheExpectedState(name: String, expected: [String]) {
    for request in ConnectionState.Request.allCases {
      for response in ConnectionState.Response.allCases {
        for keepsAlive in [true, false] {
          let state = ConnectionState(request: request, response: response, keepsAlive: keepsAlive)
          guard "\(request) \(response) \(keepsAlive)" == name else { continue }
          for (input, expected) in zip(ConnectionState.Input.allCases, expected) {
            let next = state.after(input).map { "\($0.request) \($0.response) \($0.keepsAlive)" } ?? "-"
            #expect(next == expected, "\(input) in \(name)")
          }
        }
      }
    }
  }
}
