// Which process something began in: one that was forked from it has a copy of its memory, and none of its threads.
#pragma once
#include <unistd.h>

namespace gristmill {

class Home {
 public:
  bool here() const { return getpid() == process_; }

 private:
  pid_t process_ = getpid();
};

}  // namespace gristmill
