// One mistake for each sanitizer, named by the argument. It exits with 0 if no sanitizer stops it.
#include <climits>
#include <cstring>
#include <thread>

namespace {

// Volatile, so that neither warnings nor optimisation see the mistakes.
int* volatile memory = nullptr;
volatile int largest = INT_MAX;
volatile int shared = 0;

void use_after_free() {
  memory = new int(1);
  delete memory;
  *memory = 2;
}

void leak() {
  memory = new int(1);
  memory = nullptr;
}

void overflow() { largest = largest + 1; }

// Often, since the thread sanitizer overlooks two accesses at exactly the same time.
void race() {
  const auto count = [] {
    for (int i = 0; i < 1000; ++i) shared = shared + 1;
  };
  std::thread other(count);
  count();
  other.join();
}

}  // namespace

int main(int argc, char** argv) {
  const char* const mistake = argc == 2 ? argv[1] : "";
  if (std::strcmp(mistake, "use_after_free") == 0) use_after_free();
  if (std::strcmp(mistake, "leak") == 0) leak();
  if (std::strcmp(mistake, "overflow") == 0) overflow();
  if (std::strcmp(mistake, "race") == 0) race();
  return 0;
}
