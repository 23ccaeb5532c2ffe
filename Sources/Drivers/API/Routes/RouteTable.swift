import ByteStreams
import HTTPCodec

/// The routes of an API, and a tree of the segments of their paths. Each event loop has its own table.
struct RouteTable {
  /// A segment of a path. The children of a node are a list, in which a variable, such as `{name}`, is the last.
  private struct Node {
    /// The place of the text in `segments`.
    var start = 0
    var end = 0
    var isVariable = false
    /// Whether the variable is the name of a session.
    var isSessionName = false
    var firstChild = -1
    var next = -1
    /// The path that ends here; -1 if there is none.
    var path = -1
  }

  /// A path with all its methods.
  struct Path {
    let template: StaticString
    fileprivate(set) var listeners: Route.Listeners = []
    fileprivate(set) var methods: Methods = []
    /// Whether every route of the path needs an existing session. If so, a wrong method of a missing session gets 404.
    fileprivate(set) var needsSession = true
    fileprivate(set) var needsAllSessions = false
    fileprivate(set) var variable = Variable.text
    /// The number of the route of each method, by the raw value of the method; -1 if there is none.
    private var routes = InlineArray<10, Int16>(repeating: -1)

    fileprivate init(_ template: StaticString) { self.template = template }

    /// Returns the number of the route; nil if the path does not have the method.
    func route(for method: HTTPMethod) -> Int? {
      let route = routes[Int(method == .head ? HTTPMethod.get.rawValue : method.rawValue)]
      return route < 0 ? nil : Int(route)
    }

    fileprivate mutating func add(_ route: Route, _ number: Int) {
      precondition(self.route(for: route.method) == nil, "two routes have the same path and method")
      routes[Int(route.method.rawValue)] = Int16(number)
      listeners.formUnion(route.listeners)
      methods.formUnion(Methods(route.method))
      needsSession = needsSession && route.needsSession
      needsAllSessions = needsAllSessions || route.needsAllSessions
    }
  }

  /// The last variable of a path. The router validates some variables before it compares the method.
  enum Variable {
    case consumer
    case problemType
    /// Text that the endpoint validates, or no variable.
    case text

    fileprivate init(_ segment: Substring) {
      switch segment {
      case "{consumer}": self = .consumer
      case "{type}": self = .problemType
      default: self = .text
      }
    }
  }

  /// The path of the table that matches the path of a request, and the places of the variables in the path of the
  /// request.
  struct Match {
    fileprivate(set) var path = 0
    /// The name of a session.
    fileprivate(set) var session: Range<Int>?
    /// The last variable; empty if there is none.
    fileprivate(set) var variable = 0..<0
  }

  private var nodes = [Node()]
  private var segments: [UInt8] = []
  private(set) var paths: [Path] = []
  private(set) var routes: [Route] = []
  /// The endpoint of each route.
  let endpoints: [any Endpoint.Type]

  init(_ endpoints: [any Endpoint.Type]) {
    self.endpoints = endpoints
    for endpoint in endpoints {
      let route = endpoint.route
      add(route, at: route.path)
      if let path = route.sessionPath { add(route, at: path) }
      routes.append(route)
    }
  }

  private mutating func add(_ route: Route, at template: StaticString) {
    var node = 0
    var variable = Variable.text
    for segment in template.description.split(separator: "/", omittingEmptySubsequences: false).dropFirst() {
      node = child(of: node, segment)
      if segment.hasPrefix("{") { variable = Variable(segment) }
    }
    if nodes[node].path < 0 {
      nodes[node].path = paths.count
      paths.append(Path(template))
      paths[paths.count - 1].variable = variable
    }
    paths[nodes[node].path].add(route, routes.count)
  }

  /// Returns the child of a node, which is added if it is missing.
  private mutating func child(of parent: Int, _ segment: Substring) -> Int {
    let isVariable = segment.hasPrefix("{")
    var last = -1
    var each = nodes[parent].firstChild
    while each >= 0, isVariable || !nodes[each].isVariable {
      if segments[nodes[each].start..<nodes[each].end].elementsEqual(segment.utf8) { return each }
      (last, each) = (each, nodes[each].next)
    }
    let added = nodes.count
    nodes.append(
      Node(
        start: segments.count, end: segments.count + segment.utf8.count, isVariable: isVariable,
        isSessionName: segment == "{name}", next: each))
    segments += segment.utf8
    if last < 0 { nodes[parent].firstChild = added } else { nodes[last].next = added }
    return added
  }

  // MARK: Look-up

  /// Returns the path of the table that matches `path`; nil if no path matches. A variable is one segment that is not
  /// empty. An empty path is `/`.
  func match(_ path: Span<UInt8>, on listeners: Route.Listeners) -> Match? {
    var match = Match()
    var node = 0
    var start = path.isEmpty ? 0 : 1
    guard path.isEmpty || path[0] == UInt8(ascii: "/") else { return nil }
    while true {
      let end = path.firstIndex(of: UInt8(ascii: "/"), from: start) ?? path.count
      guard let found = find(path.extracting(start..<end), below: node) else { return nil }
      node = found
      if nodes[node].isVariable {
        match.variable = start..<end
        if nodes[node].isSessionName { match.session = match.variable }
      }
      if end == path.count { break }
      start = end + 1
    }
    guard nodes[node].path >= 0, !paths[nodes[node].path].listeners.isDisjoint(with: listeners) else { return nil }
    match.path = nodes[node].path
    return match
  }

  private func find(_ segment: Span<UInt8>, below parent: Int) -> Int? {
    var each = nodes[parent].firstChild
    while each >= 0 {
      let node = nodes[each]
      if node.isVariable ? !segment.isEmpty : segment.equals(segments.span.extracting(node.start..<node.end)) {
        return each
      }
      each = node.next
    }
    return nil
  }

  /// Returns the paths of a listener, for the text of an error. A path with a variable in the middle is left out, since
  /// the path that ends with the variable leads to it.
  func listedPaths(on listeners: Route.Listeners) -> [String] {
    var listed: [String] = []
    for route in routes where !route.listeners.isDisjoint(with: listeners) {
      let path = route.path.description
      let end = path.firstIndex(of: "}") ?? path.indices.last
      if end == path.indices.last, listed.last != path { listed.append(path) }
    }
    return listed
  }
}
