import Access
import ByteStreams
import HTTPCodec
import HTTPServer
import Sessions

/// An operation of the API: its row in the table of routes, and two functions. `read` reads the parameters and fields
/// in the head of a request, and `execute` responds when the content has arrived.
///
/// An endpoint is a type without values. The table has its metatype, so a call goes through the witness table of a
/// concrete type: nothing is generic at run time, and nothing is allocated. A class per endpoint that is generic over
/// `Input` would not be specialised, since its methods would be called through its base class.
protocol Endpoint: SendableMetatype {
  /// The values that `read` has read from the head of a request.
  associatedtype Input = Void

  static var route: Route { get }

  /// Reads the head of a request that the client may send. Throws the problem of the response if a parameter is not
  /// valid.
  ///
  /// - Parameter variable: the last variable in the path; empty if there is none.
  static func read(
    _ head: borrowing HTTPRequestHead, _ variable: Span<UInt8>, of request: ReceivedRequest, _ api: API
  ) throws(Problem) -> Input

  /// Whether the response may have to wait, or is a stream.
  static func mayWait(_ input: Input) -> Bool

  /// The size in bytes from which a body has a preparation.
  static func smallestLongBody(_ input: Input) -> Int

  /// Returns the work on a large body that must run on another thread; nil if there is none.
  static func preparation(_ input: Input, of request: ReceivedRequest, _ api: API) -> (any BodyPreparation)?

  /// Executes a request whose content has arrived.
  static func execute(
    _ input: Input, of request: ReceivedRequest, _ body: RequestBody?, _ turn: Turn, into response: inout Response
  ) throws(Problem) -> Outcome

  /// Stores an input between `read` and `execute`. The endpoints of frequent requests have their own case, which
  /// allocates nothing.
  static func store(_ input: consuming Input) -> StoredInput
  static func restore(_ input: StoredInput) -> Input?

  // The functions that the API calls. They are requirements of the protocol, so that the compiler specialises them for
  // each endpoint. Their implementations below call the functions above.

  static func accept(
    _ head: borrowing HTTPRequestHead, _ variable: Span<UInt8>, _ request: ReceivedRequest, _ api: API
  ) throws(Problem) -> AcceptedHead
  static func prepare(_ input: StoredInput, _ request: ReceivedRequest, _ api: API) -> (any BodyPreparation)?
  static func run(
    _ input: StoredInput, _ request: ReceivedRequest, _ body: RequestBody?, _ turn: Turn, into response: inout Response
  ) throws(Problem) -> Outcome
}

/// What an endpoint has read from the head of a request.
enum StoredInput {
  case nothing
  case messages(IncomingMessage)
  case poll(PollParameters)
  case call(IncomingCall)
  case delivery(DeliveryTerms.Issued, wait: TimeSpan)
  case other(Any)
}

/// The result of an endpoint that has read the head of a request.
struct AcceptedHead {
  let input: StoredInput
  let mayWait: Bool
  let smallestLongBody: Int
}

/// The API of an event loop, and the time of the loop's turn.
struct Turn {
  let api: API
  let now: MonotonicTime
}

/// A request whose head has been read.
struct ReceivedRequest {
  var target = Target()
  var grant: Grant?
  /// The client for which the request is counted in totals with a reserve (`ReservedTotal`).
  var client: UInt64 = 0
  var coding = HTTPAcceptedCodings.identity
  var representation = Representation.text
  /// The context of the request; nil for most requests.
  var context: RequestContext?

  /// Whether another gateway has forwarded the request.
  var isFromPeer: Bool { context?.isForwarded ?? false }

  /// The session in the path.
  var session: Session {
    guard let session = target.session else { preconditionFailure("the route has no session") }
    return session
  }
}

/// An endpoint that responds at once, from the state of this gateway.
protocol ImmediateEndpoint: Endpoint {
  static func respond(
    _ input: Input, to request: ReceivedRequest, _ turn: Turn, into response: inout Response
  ) throws(Problem)
}

extension ImmediateEndpoint {
  static func execute(
    _ input: Input, of request: ReceivedRequest, _ body: RequestBody?, _ turn: Turn, into response: inout Response
  ) throws(Problem) -> Outcome {
    try respond(input, to: request, turn, into: &response)
    return .respond
  }
}

extension Endpoint {
  static func smallestLongBody(_ input: Input) -> Int { .max }

  static func mayWait(_ input: Input) -> Bool { false }

  static func preparation(_ input: Input, of request: ReceivedRequest, _ api: API) -> (any BodyPreparation)? { nil }

  static func store(_ input: consuming Input) -> StoredInput { .other(input) }

  static func restore(_ input: StoredInput) -> Input? {
    if case .other(let value) = input { value as? Input } else { nil }
  }

  private static func value(of input: StoredInput) -> Input {
    guard let value = restore(input) else { preconditionFailure("the input of another endpoint") }
    return value
  }

  static func accept(
    _ head: borrowing HTTPRequestHead, _ variable: Span<UInt8>, _ request: ReceivedRequest, _ api: API
  ) throws(Problem) -> AcceptedHead {
    let input = try read(head, variable, of: request, api)
    let (mayWait, smallest) = (mayWait(input), smallestLongBody(input))
    return AcceptedHead(input: store(input), mayWait: mayWait, smallestLongBody: smallest)
  }

  static func prepare(_ input: StoredInput, _ request: ReceivedRequest, _ api: API) -> (any BodyPreparation)? {
    preparation(value(of: input), of: request, api)
  }

  static func run(
    _ input: StoredInput, _ request: ReceivedRequest, _ body: RequestBody?, _ turn: Turn, into response: inout Response
  ) throws(Problem) -> Outcome {
    try execute(value(of: input), of: request, body, turn, into: &response)
  }
}

extension Endpoint where Input == Void {
  static func read(
    _ head: borrowing HTTPRequestHead, _ variable: Span<UInt8>, of request: ReceivedRequest, _ api: API
  ) throws(Problem) {}

  static func store(_ input: consuming Void) -> StoredInput { .nothing }
  static func restore(_ input: StoredInput) -> Void? { () }
}
